package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/internal/freeport"
	"github.com/weir-rls/weir/internal/must"
)

// slots is the number of slots of a cluster.
const slots = 16384

// A Cluster is a Redis Cluster of masters with equal numbers of slots.
type Cluster struct {
	Servers []*Server
	ids     []string
	bus     []string // the ports of the cluster bus
}

// StartCluster starts a cluster until the end of the test. It returns once every node knows all
// slots. settings are arguments of each redis-server.
func StartCluster(tb testing.TB, nodes int, settings ...string) *Cluster {
	tb.Helper()
	return StartClusterBehind(tb, nodes, func(addr string) string { return addr }, settings...)
}

// StartClusterBehind starts a cluster with a proxy in front of each node. behind receives a node's
// address and returns the address that the node announces to clients.
func StartClusterBehind(tb testing.TB, nodes int, behind func(addr string) string, settings ...string) *Cluster {
	tb.Helper()
	c := &Cluster{}
	for range nodes {
		s, bus := startNode(tb, behind, settings...)
		c.Servers, c.bus = append(c.Servers, s), append(c.bus, bus)
	}
	c.form(tb, c.Addrs())
	return c
}

// form joins the servers to a cluster; the nodes reach each other by addrs.
func (c *Cluster) form(tb testing.TB, addrs []string) {
	tb.Helper()
	nodes := len(c.Servers)
	for i, s := range c.Servers {
		s.do(tb, "cluster", "set-config-epoch", i+1)
		s.do(tb, addSlots(i*slots/nodes, (i+1)*slots/nodes)...)
		c.ids = append(c.ids, fmt.Sprint(s.do(tb, "cluster", "myid")))
		c.meet(tb, addrs[i], c.bus[i])
	}
	for _, s := range c.Servers {
		Await(tb, "cluster at "+s.Addr, func(ctx context.Context) error { return s.clusterIsOK(ctx, nodes) })
	}
}

func startNode(tb testing.TB, behind func(addr string) string, settings ...string) (*Server, string) {
	tb.Helper()
	addr, bus := freeForCluster(tb)
	_, announced, err := net.SplitHostPort(behind(addr))
	must.Succeed(tb, err)
	s, err := Run(addr, clusterSettings(tb, bus, append([]string{"--cluster-announce-port", announced}, settings...)...)...)
	return stopAtCleanup(tb, s, err), bus
}

// clusterSettings returns the settings of a node with a bus port.
func clusterSettings(tb testing.TB, bus string, settings ...string) []string {
	return append([]string{
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--dir", tb.TempDir(),
		"--cluster-announce-bus-port", bus, "--cluster-node-timeout", "20000", "--repl-diskless-sync-delay", "0",
	}, settings...)
}

func (c *Cluster) meet(tb testing.TB, addr, bus string) {
	tb.Helper()
	host, port, _ := net.SplitHostPort(addr)
	c.Servers[0].do(tb, "cluster", "meet", host, port, bus)
}

// Replicate adds a replica to each master. It returns them in the order of the masters.
func (c *Cluster) Replicate(tb testing.TB) []*Server {
	tb.Helper()
	var replicas []*Server
	for i := range c.Servers {
		replicas = append(replicas, c.AddReplica(tb, i))
	}
	return replicas
}

// AddReplica adds a replica of a node. It returns once the replica is in sync and all nodes know
// it.
func (c *Cluster) AddReplica(tb testing.TB, node int) *Server {
	tb.Helper()
	s, bus := startNode(tb, func(addr string) string { return addr })
	c.meet(tb, s.Addr, bus)
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
	ask(s, c.ids[node], "master", "cluster", "nodes")
	s.do(tb, "cluster", "replicate", c.ids[node])
	ask(s, "master_link_status", ":up", "info", "replication")
	// A node that does not know that all slots are served would not serve its own.
	ask(s, "cluster_state", ":ok", "cluster", "info")
	for _, server := range c.Servers {
		ask(server, id, " slave "+c.ids[node], "cluster", "nodes")
	}
	return s
}

// DetectFailures lets a node fail over, here and at its replica, when a master has not replied for
// a second. Until then, a busy machine that stops a node causes no failover.
func (c *Cluster) DetectFailures(tb testing.TB, replicas ...*Server) {
	tb.Helper()
	for _, s := range slices.Concat(c.Servers, replicas) {
		s.do(tb, "config", "set", "cluster-node-timeout", downAfter.Milliseconds())
		// However late the election is, the replica may win it.
		s.do(tb, "config", "set", "cluster-replica-validity-factor", 0)
	}
}

// freeForCluster returns a free address for a node, and its bus port. Before Redis 7 the bus port
// is always 10,000 above the other one.
func freeForCluster(tb testing.TB) (addr, bus string) {
	tb.Helper()
	const above, last = 10_000, 22_000
	for range 1000 {
		port, err := freeport.Find()
		must.Succeed(tb, err)
		if port < last && freeport.Reserve(port+above) == nil {
			return freeport.Addr(port), strconv.Itoa(port + above)
		}
	}
	tb.Fatal("redistest: no address for a node is free")
	return "", ""
}

// addSlots returns the command for the slots from first to end - 1. Redis 6.2 knows no ranges.
func addSlots(first, end int) []any {
	command := []any{"cluster", "addslots"}
	for slot := first; slot < end; slot++ {
		command = append(command, slot)
	}
	return command
}

func (s *Server) clusterIsOK(ctx context.Context, nodes int) error {
	c := s.newClient()
	defer c.Close()
	info, err := c.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	for _, want := range []string{
		"cluster_state:ok\r\n", fmt.Sprintf("cluster_slots_ok:%d\r\n", slots),
		fmt.Sprintf("cluster_known_nodes:%d\r\n", nodes),
	} {
		if !strings.Contains(info, want) {
			return fmt.Errorf("want %q in %q", want, info)
		}
	}
	return nil
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string { return addrs(c.Servers) }

// Slot returns the slot of a key, computed by Redis.
func (c *Cluster) Slot(tb testing.TB, key string) int {
	tb.Helper()
	slot, _ := c.Servers[0].do(tb, "cluster", "keyslot", key).(int64)
	return int(slot)
}

// Owner returns the index of the node that had a slot at the start.
func (c *Cluster) Owner(slot int) int {
	for i := range c.Servers {
		if slot < (i+1)*slots/len(c.Servers) {
			return i
		}
	}
	return -1
}

// SlotsWithKeys returns the slots in which a node has keys.
func (c *Cluster) SlotsWithKeys(tb testing.TB, node int) []int {
	tb.Helper()
	keys, _ := c.Servers[node].do(tb, "keys", "*").([]any)
	var all []int
	for _, key := range keys {
		if slot := c.Slot(tb, fmt.Sprint(key)); !slices.Contains(all, slot) {
			all = append(all, slot)
		}
	}
	return all
}

// FlushAll deletes all keys of all nodes.
func (c *Cluster) FlushAll(tb testing.TB) {
	tb.Helper()
	for _, s := range c.Servers {
		s.do(tb, "flushall")
	}
}

// OpenSlot starts the migration of a slot. Node from then replies ASK for keys that it lacks.
func (c *Cluster) OpenSlot(tb testing.TB, slot, from, to int) {
	tb.Helper()
	c.Servers[to].do(tb, "cluster", "setslot", slot, "importing", c.ids[from])
	c.Servers[from].do(tb, "cluster", "setslot", slot, "migrating", c.ids[to])
}

// MoveKeys moves the keys of an open slot.
func (c *Cluster) MoveKeys(tb testing.TB, slot, from, to int) {
	tb.Helper()
	host, port, _ := net.SplitHostPort(c.Servers[to].Addr)
	for {
		keys, _ := c.Servers[from].do(tb, "cluster", "getkeysinslot", slot, 10).([]any)
		if len(keys) == 0 {
			return
		}
		for _, key := range keys {
			c.Servers[from].do(tb, "migrate", host, port, key, 0, timeout.Milliseconds())
		}
	}
}

// AssignSlot assigns a slot to node to. All other nodes then reply MOVED.
func (c *Cluster) AssignSlot(tb testing.TB, slot, to int) {
	tb.Helper()
	c.Servers[to].do(tb, "cluster", "setslot", slot, "node", c.ids[to])
	for i, s := range c.Servers {
		if i != to {
			s.do(tb, "cluster", "setslot", slot, "node", c.ids[to])
		}
	}
}

// Client returns a client of the cluster, which is closed after the test.
func (c *Cluster) Client(tb testing.TB) *redis.ClusterClient {
	tb.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: c.Addrs(), DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout,
	})
	tb.Cleanup(func() { _ = client.Close() })
	return client
}
