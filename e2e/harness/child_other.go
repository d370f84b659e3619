//go:build !linux

package harness

import "syscall"

// childAttr starts a server in its own process group, so that Ctrl-C reaches only its parent, which
// stops the server.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
