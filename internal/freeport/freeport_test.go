package freeport

import (
	"net"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

// Two tests, also of different processes, never get one port, although no server has started.
func TestPortIsReserved(t *testing.T) {
	port, err := Find()
	must.Succeed(t, err)
	if err := Reserve(port); err == nil {
		t.Errorf("port %d was given twice", port)
	}
	l, err := net.Listen("tcp", Addr(port))
	must.Succeed(t, err)
	must.Succeed(t, l.Close())
}
