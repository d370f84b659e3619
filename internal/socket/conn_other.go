//go:build !linux

package socket

import "net"

// Quick returns c. Only Linux has an implementation.
func Quick(c net.Conn) net.Conn { return c }
