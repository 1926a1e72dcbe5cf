"""What the user writes: the model of a definition, how it is read, and what is wrong with it.

Pure: text or values in, values or ``DefinitionError`` out. Nothing here knows of runs, stores or time.
"""
