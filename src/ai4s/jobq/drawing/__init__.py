"""Pictures and diagrams of workflows as text: SVG, Mermaid, DOT, plain layers.

Pure: values in, text out. The SVG is written by hand, needs no font and no script, and opens in any browser.
"""
