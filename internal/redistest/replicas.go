package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
)

// AddReplica adds to a cluster a replica of one of its nodes, and returns once it has all that the node has, and every node
// knows it.
func (c *Nodes) AddReplica(tb testing.TB, of int, settings ...string) *Server {
	tb.Helper()
	addr, bus := freeForCluster(tb)
	s, err := Run(addr, append([]string{
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--dir", tb.TempDir(),
		"--cluster-node-timeout", "5000", "--repl-diskless-sync-delay", "0",
	}, settings...)...)
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	tb.Cleanup(s.Stop)
	host, port, _ := net.SplitHostPort(addr)
	c.Servers[of].do(tb, "cluster", "meet", host, port, bus)
	id := fmt.Sprint(s.do(tb, "cluster", "myid"))
	// ask waits until a server tells, in a line that begins so, what it shall.
	ask := func(server *Server, line, want string, command ...any) {
		Await(tb, want+" at "+server.Addr, func(ctx context.Context) error {
			client := server.newClient()
			defer client.Close()
			text, err := client.Do(ctx, command...).Text()
			for told := range strings.Lines(text) {
				if strings.HasPrefix(told, line) && strings.Contains(told, want) {
					return nil
				}
			}
			return errors.Join(err, fmt.Errorf("want %q in %q", want, text))
		})
	}
	ask(s, c.ids[of], "master", "cluster", "nodes")
	s.do(tb, "cluster", "replicate", c.ids[of])
	ask(s, "master_link_status", ":up", "info", "replication")
	// One that does not know that all slots are served would not serve its own.
	ask(s, "cluster_state", ":ok", "cluster", "info")
	for _, server := range c.Servers {
		ask(server, id, " slave "+c.ids[of], "cluster", "nodes")
	}
	return s
}

// IsMaster tells whether the server says that it is a master.
func (s *Server) IsMaster(ctx context.Context) error {
	c := s.newClient()
	defer c.Close()
	role, err := c.Do(ctx, "role").Slice()
	if err == nil && (len(role) == 0 || role[0] != "master") {
		err = fmt.Errorf("its role is %v", role)
	}
	return err
}
