SELECT nextval('generations') AS generation
