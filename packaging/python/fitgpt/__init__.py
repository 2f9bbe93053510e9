"""fitGPT trains GPT-2-class language models within a memory budget.

The package holds one program, `fitgpt`; there is nothing to import.
`python -m fitgpt` runs it where the scripts' folder is not on the PATH.
"""
