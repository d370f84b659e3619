//go:build !linux

package differential

import "syscall"

// childAttr returns nil, because only Linux can end a child with its parent.
func childAttr() *syscall.SysProcAttr { return nil }
