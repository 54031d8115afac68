"""The door for assistants: `ratioscope mcp` answers a program that speaks the Model Context Protocol.

`shelf` is the folder with its runs, `tools` what can be asked of them, `bounded` how much one answer may hold, and
`server` what speaks the protocol. Nothing here computes: every answer is what pages and commands say.
"""
