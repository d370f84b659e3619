package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// A cluster is a Redis Cluster. Each node has a queue, so a slow node delays only its own
// operations.
type cluster struct {
	store  *Store
	client *redis.ClusterClient // that of the store

	hashSlotsKnown atomic.Bool // go-redis never forgets the hash slots
	// Until then, Takes wait in this queue, whose calls load the hash slots. So a cluster that
	// hangs gets one request at a time, and soon Takes fail immediately.
	hashSlotLoader *queue

	mu    sync.Mutex
	nodes map[string]*node // the nodes by address
}

func newCluster(s *Store, client *redis.ClusterClient) *cluster {
	c := &cluster{store: s, client: client, nodes: map[string]*node{}}
	c.hashSlotLoader = newQueue(s.queues, c.loadHashSlots)
	return c
}

// maxNodes is the number of nodes from which a new node drops the idle ones. A cluster is limited
// to 1,000 nodes, but addresses change. A node with a call in flight stays, until its timeout at
// most. A dropped node still serves a Take that has found it.
const maxNodes = 1024

// Take decides groups on the nodes that own their hash slots.
func (c *cluster) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	if !c.hashSlotsKnown.Load() {
		if err := c.awaitHashSlots(ctx, groups, out); err != nil {
			return err
		}
	}
	queues, err := c.route(ctx, groups)
	if err != nil {
		return err
	}
	if q := queues[0]; q != nil && !slices.ContainsFunc(queues, func(other *queue) bool { return other != q }) {
		return q.Take(ctx, groups, out)
	}
	var fanOut split.FanOut
	for first, g := range limiters.EachGroup(groups) {
		if q := queues[0]; q != nil {
			fanOut.Add(q, g, first)
		} else {
			limiters.FailAll(out[first:first+len(g)], ErrGroupSpansHashSlots)
		}
		queues = queues[1:]
	}
	return fanOut.Take(ctx, out)
}

var (
	errNoHashSlots = errors.New("the cluster does not report its hash slots")
	// errNoHosts is returned for a cluster that reports nodes without a host, which go-redis cannot
	// use.
	errNoHosts = errors.New("the cluster announces no host of its nodes: set cluster-preferred-endpoint-type to ip or hostname")
)

// awaitHashSlots waits until the hash slots are known. A timeout is [limiters.Uncharged], because
// only the request for the hash slots was sent.
func (c *cluster) awaitHashSlots(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	err := c.hashSlotLoader.Take(ctx, groups, out)
	if errors.Is(err, errEndedSent) {
		c.store.stats.unsent.Add(int64(len(out)))
		return limiters.Uncharged(withCause(errNoHashSlots, ctx.Err()))
	}
	return err
}

// loadHashSlots is the [callFunc] of c.hashSlotLoader. It decides nothing.
func (c *cluster) loadHashSlots(ctx context.Context, _ time.Time, _ []limiters.Group, _ []limiters.Verdict) error {
	if _, err := c.masterOf(ctx, ""); err != nil {
		return limiters.Uncharged(fmt.Errorf("%w: %w", errNoHashSlots, err))
	}
	c.hashSlotsKnown.Store(true)
	return nil
}

// route returns the queue of each group, that of the node that owns the group's hash slot. A group
// whose keys are in several hash slots has none.
func (c *cluster) route(ctx context.Context, groups []limiters.Group) ([]*queue, error) {
	queues, hashSlots := make([]*queue, len(groups)), make([]uint16, len(groups))
	keys := c.store.namer.keys(groups)
	for i, g := range groups {
		own := keys[:len(g)]
		keys = keys[len(g):]
		hashSlots[i] = hashSlotOf(own[0])
		if spansHashSlots(own) {
			continue
		}
		if j := slices.Index(hashSlots[:i], hashSlots[i]); j >= 0 && queues[j] != nil {
			queues[i] = queues[j] // keep the order of operations of one hash slot
			continue
		}
		n, err := c.nodeOf(ctx, own[0])
		if err != nil {
			return nil, err
		}
		queues[i] = n.queue
	}
	return queues, nil
}

// nodeOf returns the node that owns key.
func (c *cluster) nodeOf(ctx context.Context, key string) (*node, error) {
	master, err := c.masterOf(ctx, key)
	if err != nil {
		return nil, limiters.Uncharged(err)
	}
	address := master.Options().Addr
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.nodes[address]
	if n == nil {
		if len(c.nodes) >= maxNodes {
			maps.DeleteFunc(c.nodes, func(_ string, n *node) bool { return n.queue.idle() })
		}
		n = c.newNode()
		c.nodes[address] = n
	}
	return n, nil
}

// masterOf returns a client of the node that owns key. An error means that its owner is unknown, so
// nothing was sent.
func (c *cluster) masterOf(ctx context.Context, key string) (*redis.Client, error) {
	master, err := c.client.MasterForKey(ctx, key)
	if errors.Is(err, redis.Nil) {
		err = errNoHosts
	}
	return master, err
}

var errNoMaster = errors.New("no node of the cluster has hash slots")

func (c *cluster) masters(ctx context.Context) ([]master, error) {
	var mu sync.Mutex
	var masters []master
	err := c.client.ForEachMaster(ctx, func(_ context.Context, client *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, master{client, client.Options().Addr})
		return nil
	})
	if err == nil && len(masters) == 0 {
		err = errNoMaster
	}
	slices.SortFunc(masters, func(a, b master) int { return strings.Compare(a.node, b.node) })
	return masters, err
}
