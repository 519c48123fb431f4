"""One file for each rule of the workflow: reads its inputs, calls the functions of one package, writes its outputs."""
