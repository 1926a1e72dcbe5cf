"""Tables, queues and blobs on Azure Storage (and on Azurite, its emulator).

Only :mod:`.services` is for other rooms; whoever imports it pays for the SDKs, so import it inside the function
that opens a target. No rule of workflows and no default of the program belongs here.
"""
