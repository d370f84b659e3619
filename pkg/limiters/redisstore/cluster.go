package redisstore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// nodes has a queue for each node of a cluster, so that a slow node delays only its own hits.
type nodes struct {
	store    *Store
	newQueue func(callFunc) *queue
	slots    slotLearner

	mu     sync.Mutex
	queues map[string]*queue // by address
}

// maxNodes is the number of queues from which a new queue drops the idle ones. A cluster has at most 1,000 nodes, but addresses change.
// A queue with a call in flight stays, until its timeout at most. A dropped queue still serves a Take that has found it.
const maxNodes = 1024

// Take decides groups on the nodes that own their slots.
func (n *nodes) Take(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	// Loading the slots counts towards the timeout.
	ctx, cancel := context.WithTimeout(ctx, n.store.timeout)
	defer cancel()
	queues := make([]*queue, len(groups))
	err := n.route(ctx, groups, queues)
	if errors.Is(err, ErrBreakerOpen) {
		n.store.stats.breakerRejected.Add(int64(len(out)))
	}
	if err != nil {
		return err
	}
	if q := queues[0]; q != nil && !slices.ContainsFunc(queues, func(other *queue) bool { return other != q }) {
		err = q.Take(ctx, now, groups, out)
	} else {
		var calls split.FanOut
		first := 0
		for i, g := range groups {
			if queues[i] != nil {
				calls.Add(queues[i], g, first)
			} else {
				limiters.FailAll(out[first:first+len(g)], ErrGroupSpansSlots)
			}
			first += len(g)
		}
		err = calls.Take(ctx, now, out)
	}
	for i := range out {
		out[i].Err = explainError(out[i].Err)
	}
	return err
}

// route sets the queue of each group, that of the node that owns the group's slot. It sets no queue for a group whose keys are in several
// slots.
func (n *nodes) route(ctx context.Context, groups []limiters.Group, queues []*queue) error {
	keys, slots := n.store.namer.keys(groups), make([]uint16, len(groups))
	for i, g := range groups {
		own := keys[:len(g)]
		keys = keys[len(g):]
		slots[i] = slotOf(own[0])
		if len(g) > 1 && spansSlots(own) {
			continue
		}
		if j := slices.Index(slots[:i], slots[i]); j >= 0 && queues[j] != nil {
			queues[i] = queues[j] // keep the order of hits of one slot
			continue
		}
		q, err := n.queueFor(ctx, own[0])
		if err != nil {
			return err
		}
		queues[i] = q
	}
	return nil
}

// queueFor returns the queue of the node that owns key.
func (n *nodes) queueFor(ctx context.Context, key string) (*queue, error) {
	node, err := n.masterFor(ctx, key)
	if err != nil {
		return nil, err
	}
	address := node.Options().Addr
	n.mu.Lock()
	defer n.mu.Unlock()
	q := n.queues[address]
	if q == nil {
		if len(n.queues) >= maxNodes {
			maps.DeleteFunc(n.queues, func(_ string, q *queue) bool { return q.idle() })
		}
		clock, reconnector := newServerClock(), n.store.newReconnector()
		q = n.newQueue(func(ctx context.Context, notAfter, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
			err := n.store.decideSlots(ctx, clock, notAfter, now, groups, out)
			if err != nil {
				n.afterError(ctx, reconnector, &groups[0][0], err)
			}
			return err
		})
		n.queues[address] = q
	}
	return q, nil
}

// masterFor returns a client of the node that owns key, loading the slots if they are unknown.
func (n *nodes) masterFor(ctx context.Context, key string) (*redis.Client, error) {
	var node *redis.Client
	err := n.slots.try(ctx, func() (err error) {
		node, err = n.store.cluster.MasterForKey(ctx, key)
		if errors.Is(err, redis.Nil) {
			err = errNoHosts
		}
		if err != nil {
			return limiters.Uncharged(err) // the slots are unknown, so nothing was sent
		}
		return nil
	})
	return node, err
}

// afterError handles a failed call: it reconnects to the current owner of the slot, because the node may have been replaced.
func (n *nodes) afterError(ctx context.Context, reconnector *reconnector, hit *limiters.Hit, err error) {
	n.store.reloadSlots(err)
	if node, lookupErr := n.store.cluster.MasterForKey(ctx, n.store.namer.key(hit)); lookupErr == nil {
		reconnector.afterError(err, node)
	}
}

// reloadSlots reloads the slots in the background if err may mean that they have moved. go-redis does so only every minute and
// after redirections.
func (s *Store) reloadSlots(err error) {
	if err != nil && slotsMayHaveMoved(err) {
		s.cluster.ReloadState(context.Background())
	}
}

// slotsMayHaveMoved reports whether err may mean that another node owns the slots now. go-redis itself handles MOVED and ASK.
func slotsMayHaveMoved(err error) bool {
	return replyOf(err) == nil || redis.IsReadOnlyError(err) || redis.IsClusterDownError(err) ||
		redis.IsMasterDownError(err) || redis.IsLoadingError(err)
}
