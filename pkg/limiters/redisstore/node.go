package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A node is a master of a [cluster], with the queue of its calls.
type node struct {
	cluster     *cluster
	queue       *queue
	script      scriptCaller // its client is that of the cluster, which follows MOVED and ASK
	reconnector *reconnector
}

func (c *cluster) newNode() *node {
	n := &node{cluster: c, script: newScriptCaller(c.client), reconnector: c.store.newReconnector()}
	n.queue = newQueue(c.store.queues, n.call)
	return n
}

// call is the [callFunc] of the queue. It makes a call for each hash slot, and returns an error
// only if all of them failed.
func (n *node) call(ctx context.Context, notAfter time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	n.cluster.store.stats.countCall(len(out))
	keys := n.cluster.store.namer.keys(groups)
	calls := splitByHashSlot(notAfter, groups, keys)
	n.makeCalls(ctx, calls)
	var moving []*hashSlotCall
	for _, call := range calls {
		if redis.IsTryAgainError(call.err) {
			moving = append(moving, call)
		}
	}
	if len(moving) > 0 {
		n.repeatKeyByKey(ctx, moving)
	}
	err := n.cluster.scatter(calls, out)
	if err != nil {
		// The node may have been replaced, so reconnect to the current owner.
		if master, lookupErr := n.cluster.masterOf(ctx, keys[0]); lookupErr == nil {
			for _, call := range calls {
				n.reconnector.afterError(call.err, master)
			}
		}
	}
	return err
}

// makeCalls encodes and sends calls, and sets their verdicts. go-redis does not use a batch after
// its call has returned, even with a timeout, so the batch can be released.
func (n *node) makeCalls(ctx context.Context, calls []*hashSlotCall) {
	now := n.cluster.store.now()
	for _, call := range calls {
		call.encode(now)
	}
	n.send(ctx, calls)
	for _, call := range calls {
		call.setVerdicts()
	}
}

func (n *node) sendAlone(ctx context.Context, call *hashSlotCall) {
	call.reply, call.err = n.script.call(ctx, call.batch)
}

// send sends each call to the current owner of its hash slot, concurrently. A panic becomes an
// error of the calls to that owner.
func (n *node) send(ctx context.Context, calls []*hashSlotCall) {
	byMaster := map[*redis.Client][]*hashSlotCall{}
	for _, call := range calls {
		master, err := n.cluster.masterOf(ctx, call.keys[0])
		if err != nil {
			failCalls(calls, limiters.Uncharged(err)) // the hash slots are unknown, so nothing was sent
			return
		}
		byMaster[master] = append(byMaster[master], call)
	}
	var sending sync.WaitGroup
	for master, calls := range byMaster {
		sending.Go(func() {
			if err := limiters.CatchPanic(func() error { n.sendTo(ctx, master, calls); return nil }); err != nil {
				n.cluster.store.stats.panics.Add(1)
				failCalls(calls, err)
			}
		})
	}
	sending.Wait()
}

// sendTo sends calls in one pipeline to the master that should own their hash slots. If the master
// lacks the script or its time is unknown, the calls charge nothing. Then one of them is sent
// alone, which fixes both, and the others in a second pipeline. Calls that still failed in this way
// are sent alone too.
func (n *node) sendTo(ctx context.Context, master *redis.Client, calls []*hashSlotCall) {
	if len(calls) > 1 {
		calls = n.pipeline(ctx, master, calls)
	}
	if len(calls) > 2 {
		n.sendAlone(ctx, calls[0])
		calls = n.pipeline(ctx, master, calls[1:])
	}
	for _, call := range calls {
		n.sendAlone(ctx, call)
	}
}

// pipeline sends calls to a master in one pipeline. It returns those to send again, which certainly
// charged nothing. It does not use the cluster client's pipeline, which waits for unreachable nodes
// and then overwrites other replies with its error.
func (n *node) pipeline(ctx context.Context, master *redis.Client, calls []*hashSlotCall) (rest []*hashSlotCall) {
	pipe := master.Pipeline()
	commands := make([]command, len(calls))
	for i, call := range calls {
		commands[i] = n.script.newCommand(ctx, "evalsha", batchScript().digest, call.batch)
		_ = pipe.Process(ctx, commands[i]) // only queues the command
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, call := range calls {
		call.reply, call.err = n.script.parse(commands[i])
		if didNotRun(call.err) || call.batch.rejectedTooEarly(call.reply, call.err) {
			rest = append(rest, call)
		}
	}
	return rest
}

func didNotRun(err error) bool {
	_, moved := redis.IsMovedError(err)
	_, ask := redis.IsAskError(err)
	return moved || ask || redis.HasErrorPrefix(err, "NOSCRIPT")
}
