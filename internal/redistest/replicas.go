package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
)

// AddReplica adds a replica of a node. It returns once the replica is in sync and all nodes know it.
func (c *Cluster) AddReplica(tb testing.TB, of int, settings ...string) *Server {
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
	// ask waits until the reply of a server has a line that begins with line and contains want.
	ask := func(server *Server, line, want string, command ...any) {
		Await(tb, want+" at "+server.Addr, func(ctx context.Context) error {
			client := server.newClient()
			defer client.Close()
			text, err := client.Do(ctx, command...).Text()
			for reply := range strings.Lines(text) {
				if strings.HasPrefix(reply, line) && strings.Contains(reply, want) {
					return nil
				}
			}
			return errors.Join(err, fmt.Errorf("want %q in %q", want, text))
		})
	}
	ask(s, c.ids[of], "master", "cluster", "nodes")
	s.do(tb, "cluster", "replicate", c.ids[of])
	ask(s, "master_link_status", ":up", "info", "replication")
	// A node that does not know that all slots are served would not serve its own.
	ask(s, "cluster_state", ":ok", "cluster", "info")
	for _, server := range c.Servers {
		ask(server, id, " slave "+c.ids[of], "cluster", "nodes")
	}
	return s
}

// CheckMaster returns an error if the server is not a master.
func (s *Server) CheckMaster(ctx context.Context) error {
	c := s.newClient()
	defer c.Close()
	role, err := c.Do(ctx, "role").Slice()
	if err == nil && (len(role) == 0 || role[0] != "master") {
		err = fmt.Errorf("its role is %v", role)
	}
	return err
}
