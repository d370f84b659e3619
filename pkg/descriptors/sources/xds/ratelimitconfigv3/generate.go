// Package ratelimitconfigv3 is the Go of rls_conf.proto, the messages in which a gateway serves rules by xDS.
//
// It stands here because the module that has them, github.com/envoyproxy/go-control-plane/ratelimit, has tagged no
// version with WEEK, quota_mode and metadata. Both register the same names with protobuf, which panics at start, so a
// program must not link both.
//
// "go generate" makes it anew, given protoc (Debian: protobuf-compiler) and
//
//	go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12 # the version in go.mod
package ratelimitconfigv3

// The path under which the file is registered is that of envoyproxy's, so that linking both fails by the file's name
// too, and at once.
//go:generate protoc -I ratelimit/config/ratelimit/v3=. -I /usr/include --go_out=. --go_opt=module=github.com/weir-rls/weir/pkg/descriptors/sources/xds/ratelimitconfigv3 ratelimit/config/ratelimit/v3/rls_conf.proto
