"""Many simulations: crossed, spread over processes or a cluster, kept in a data set of results."""
