package redistest

import (
	"net"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

// A port that another process takes after it was found free fails no test.
func TestStartTakesAnotherAddressIfOneIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer taken.Close()
	go func() { // answers with the end of the connection, until Close
		for {
			conn, err := taken.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	asked := 0
	s := startAtFree(t, func(tb testing.TB) string {
		if asked++; asked == 1 {
			return taken.Addr().String()
		}
		return FreeAddr(tb)
	})
	if asked != 2 || s.Addr == taken.Addr().String() {
		t.Errorf("started on %s after %d addresses, want the second", s.Addr, asked)
	}
}
