# Completion of fitgpt for PowerShell 5 and newer. Load it with:
# fitgpt completions powershell | Out-String | Invoke-Expression
Register-ArgumentCompleter -Native -CommandName fitgpt -ScriptBlock {
    param($current, $line, $cursor)
    $before = @($line.CommandElements | Select-Object -Skip 1 |
        Where-Object { $_.Extent.EndOffset -lt $cursor } |
        ForEach-Object { $_.Extent.Text.Trim("'", '"') })
    $program = $line.CommandElements[0].Extent.Text
    # Older versions drop an empty last argument.
    $words = @($before) + @($(if ($current) { $current } else { '""' }))
    & $program __complete @words 2>$null | ForEach-Object {
        $word, $about = $_ -split "`t", 2
        $typed = if ($word -match '\s') { "'$($word -replace "'", "''")'" } else { $word }
        if (-not $about) { $about = $word }
        [System.Management.Automation.CompletionResult]::new($typed, $word, 'ParameterValue', $about)
    }
}
