// Package ratelimitconfigv3 contains the Go types of rls_conf.proto: the messages in which a
// gateway serves rules over xDS.
//
// The module github.com/envoyproxy/go-control-plane/ratelimit has them too, but no tagged version
// has WEEK, quota_mode and metadata. A program must not link both: they register the same names
// with protobuf, which panics at start.
//
// "go generate" regenerates it. It needs protoc (Debian: protobuf-compiler) and
//
//	go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12 # the version in go.mod
package ratelimitconfigv3

// The file is registered under the path that envoyproxy uses, so that a program that links both
// fails at start.
//go:generate protoc -I ratelimit/config/ratelimit/v3=. -I /usr/include --go_out=. --go_opt=module=github.com/weir-rls/weir/pkg/descriptors/sources/xds/ratelimitconfigv3 ratelimit/config/ratelimit/v3/rls_conf.proto
