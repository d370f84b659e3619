package harness

import "syscall"

// childAttr starts a server in its own process group, so that Ctrl-C reaches only its parent, which
// stops the server. The kernel kills the server if its parent dies, so that a crashed test leaves
// no process behind.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
