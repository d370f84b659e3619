package differential

import "syscall"

// childAttr makes a server end with the test process that started it.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
