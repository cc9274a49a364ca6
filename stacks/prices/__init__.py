"""Provide AWS prices, and estimate a cluster's cost per hour."""
