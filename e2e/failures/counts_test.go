package failures

import (
	"context"
	"encoding/binary"
	"regexp"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

// storedCounts returns the counts in Redis for each user of the actions window and first, read from
// the keys themselves. It reads only the given server, which may be a replica or a node of a
// cluster.
func storedCounts(tb testing.TB, addr string) map[counter]int {
	tb.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true})
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	conn := c.Conn()
	defer conn.Close()
	_ = conn.ReadOnly(ctx).Err() // needed for a replica of a cluster; other servers refuse the command
	all := map[counter]int{}
	var cursor uint64
	for {
		keys, next, err := conn.Scan(ctx, cursor, "*", 1000).Result()
		if err != nil {
			tb.Fatalf("%s: %v", addr, err)
		}
		for _, key := range keys {
			who := user.FindStringSubmatch(key)
			if who == nil {
				tb.Fatalf("%s: unexpected key %q", addr, key)
			}
			state, err := conn.Get(ctx, key).Result()
			count, bad := strconv.Atoi(state) // envoyproxy/ratelimit writes a decimal number
			if len(state) == 16 {
				count, bad = int(binary.BigEndian.Uint64([]byte(state)[8:])), nil
			}
			if err != nil || bad != nil {
				tb.Fatalf("%s: %q is %q, %v, want the state of a window", addr, key, state, err)
			}
			n, _ := strconv.Atoi(who[1])
			all[counter{who[2], n}] += count
		}
		if cursor = next; cursor == 0 {
			return all
		}
	}
}

var user = regexp.MustCompile(`user-(\d{6}).*(window|first)`)

func sum(n map[counter]int) (all int) {
	for _, one := range n {
		all += one
	}
	return all
}
