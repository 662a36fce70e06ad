"""Trust: the contents of a repository that could run a program or loosen a rule, and the version of
each that the person has trusted."""
