#!/bin/bash
# The setup of clusters that are only synthesized.
echo "set up"
