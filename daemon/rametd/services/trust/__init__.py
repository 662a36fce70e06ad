"""Trust: what a repository contains that could run a program or loosen a rule, and which version of
it the person has trusted."""
