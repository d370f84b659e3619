package rls_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
	"github.com/weir-rls/weir/pkg/receipt"
	"github.com/weir-rls/weir/pkg/rls"
)

const benchRules = `
domain: ugc
descriptors:
  - key: user_id
    descriptors:
      - {key: action, value: reply, rate_limit: {unit: hour, requests_per_unit: 4000000000}}
      - {key: action, value: post, rate_limit: {unit: hour, requests_per_unit: 0}}
      - {key: action, value: comment, rate_limit: {unit: hour, requests_per_unit: 0, on_deny: {problem: true}}}
`

// benchmark measures a request with n descriptors from its bytes to the bytes of its response, with
// a store in memory.
func benchmark(b *testing.B, serve serveFunc, action string, n int, o rls.Options) {
	rules := rulesfiletest.Parse(b, benchRules)
	request := &ratelimitv3.RateLimitRequest{Domain: "ugc"}
	for i := range n {
		request.Descriptors = append(request.Descriptors, &commonv3.RateLimitDescriptor{
			Entries: []*commonv3.RateLimitDescriptor_Entry{
				{Key: "user_id", Value: fmt.Sprintf("user-%06d", i)}, {Key: "action", Value: action},
			},
		})
	}
	wire, err := proto.Marshal(request)
	must.Succeed(b, err)
	service := rls.New(decide.New(func() *descriptors.Rules { return rules }, memstore.New(memstore.Options{}), decide.Options{}), o)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := serve(b.Context(), service, wire); err != nil {
			b.Fatal(err)
		}
	}
}

// A serveFunc serves a request in wire format.
type serveFunc func(ctx context.Context, s *rls.Service, request []byte) (mem.BufferSlice, error)

// BenchmarkRequest compares the two codecs, with one and five descriptors.
func BenchmarkRequest(b *testing.B) {
	for _, n := range []int{1, 5} {
		for name, serve := range map[string]serveFunc{"wire": rls.ServeWire, "messages": rls.ServeByGeneratedTypes} {
			b.Run(fmt.Sprintf("%s/descriptors=%d", name, n), func(b *testing.B) { benchmark(b, serve, "reply", n, rls.Options{}) })
		}
	}
}

// BenchmarkResponse measures a request by the parts of its response.
func BenchmarkResponse(b *testing.B) {
	keys, err := receipt.ParseKeys([]byte(strings.Repeat("ab", 32)))
	must.Succeed(b, err)
	receipts := rls.Receipts{Header: "x-receipt", Keys: func() *receipt.Keys { return keys }, Replica: "weir-7d9f8b6c5-x2x4z"}
	for _, c := range []struct {
		name, action string
		options      rls.Options
	}{
		{"allowed", "reply", rls.Options{}},
		{"allowed_receipts_on", "reply", rls.Options{Receipts: receipts}},
		{"allowed_standard_headers", "reply", rls.Options{StandardHeaders: true}},
		{"denied", "post", rls.Options{}},
		{"denied_receipt", "post", rls.Options{Receipts: receipts}},
		{"denied_header", "post", rls.Options{DeniedByHeader: "x-denied-by"}},
		{"denied_standard_headers", "post", rls.Options{StandardHeaders: true}},
		{"denied_problem", "comment", rls.Options{}},
	} {
		b.Run(c.name, func(b *testing.B) { benchmark(b, rls.ServeWire, c.action, 1, c.options) })
	}
}
