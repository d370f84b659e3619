package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// BenchmarkKeyBytes measures by how much a key of 40 bytes makes Redis' used_memory grow, by the
// number of keys. A part of the tables of Redis is included.
func BenchmarkKeyBytes(b *testing.B) {
	for _, c := range limiterstest.SizeCases() {
		b.Run(fmt.Sprintf("%s/%d", c.Name, c.Keys), func(b *testing.B) {
			server := redistest.Start(b)
			s := newTestStore(connect.Options{Addr: server.Addr, Timeout: longTimeout}, Options{})
			defer s.Close()
			admin := server.Client(b)
			fill := func(keys int) {
				err := c.Fill(keys, func(now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
					return s.TakeAt(b.Context(), now, groups, out)
				})
				must.Succeed(b, err)
			}
			for b.Loop() {
				admin.FlushAll(b.Context())
				fill(1) // The first call loads the script.
				before := usedMemory(b, admin)
				fill(c.Keys)
				b.ReportMetric(float64(usedMemory(b, admin)-before)/float64(c.Keys), "bytes/key")
			}
		})
	}
}

func usedMemory(b *testing.B, c *redis.Client) int64 {
	b.Helper()
	info, err := c.Info(context.Background(), "memory").Result()
	must.Succeed(b, err)
	_, rest, _ := strings.Cut(info, "\r\nused_memory:")
	text, _, _ := strings.Cut(rest, "\r\n")
	n, err := strconv.ParseInt(text, 10, 64)
	must.Succeed(b, err)
	return n
}
