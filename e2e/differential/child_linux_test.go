package differential

import "syscall"

// childAttr lets a server end with the test that started it: one that crashes or is killed leaves nothing behind.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
