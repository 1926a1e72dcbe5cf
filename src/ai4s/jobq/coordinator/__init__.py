"""The coordinator: the loop that receives reports, lets the engine decide, stores the decision, and sends what follows.

Stateless: whatever it keeps in memory can be thrown away at any moment. Any number may run; one leads.
"""
