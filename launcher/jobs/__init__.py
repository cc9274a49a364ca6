"""Jobs as they are known after they were started: their records, and the verbs that ask for them."""
