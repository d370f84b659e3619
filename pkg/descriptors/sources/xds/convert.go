package xds

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	conf "github.com/weir-rls/weir/pkg/descriptors/sources/xds/ratelimitconfigv3"
)

const (
	// maxResourceBytes bounds a resource as YAML, like a rules file.
	maxResourceBytes = 16 << 20
	// maxNesting bounds the nesting of messages. The parser of rules has a lower bound and a better
	// error.
	maxNesting = 250
	// maxUnreadable bounds the unreadable resources that an error names, because a push may have
	// millions of empty ones.
	maxUnreadable = 20
)

// convert returns the resources of a push as files, sorted by name. The error names the first
// unreadable resources.
func convert(push *discovery.DiscoveryResponse) ([]rulesfile.File, error) {
	if url := push.GetTypeUrl(); url != TypeURL {
		return nil, fmt.Errorf("the push has type %.200q, want %s", url, TypeURL)
	}
	var errs []error
	files := make([]rulesfile.File, 0, len(push.GetResources()))
	for i, resource := range push.GetResources() {
		file, err := toFile(resource)
		if err != nil {
			errs = append(errs, fmt.Errorf("resource %d of %d: %w", i+1, len(push.GetResources()), err))
			if len(errs) == maxUnreadable {
				break
			}
			continue
		}
		files = append(files, file)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	slices.SortFunc(files, func(a, b rulesfile.File) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), bytes.Compare(a.Data, b.Data))
	})
	return files, nil
}

func toFile(resource *anypb.Any) (rulesfile.File, error) {
	if url := resource.GetTypeUrl(); url != TypeURL {
		return rulesfile.File{}, fmt.Errorf("it has type %.200q, want %s", url, TypeURL)
	}
	config := &conf.RateLimitConfig{}
	if err := (proto.UnmarshalOptions{RecursionLimit: maxNesting}).Unmarshal(resource.GetValue(), config); err != nil {
		return rulesfile.File{}, fmt.Errorf("it is not a RateLimitConfig: %w", err)
	}
	// Resources may lack a name or share one. The domain then distinguishes their faults.
	name := cmp.Or(config.GetName(), config.GetDomain(), "unnamed")
	text := yamlOf(config)
	if len(text) > maxResourceBytes {
		return rulesfile.File{}, fmt.Errorf("%.200q is too large: at most %d bytes as YAML are allowed, use several resources",
			name, maxResourceBytes)
	}
	return rulesfile.File{Name: name, Data: text, Generated: true}, nil
}
