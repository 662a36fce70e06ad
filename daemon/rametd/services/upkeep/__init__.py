"""What is to be tidied: differences between the rows and the world, what can go, what expires."""
