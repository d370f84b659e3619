package envoyactions

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	exprv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/rate_limit_descriptors/expr/v3"
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// An effect is the effect of an action on a descriptor.
type effect struct {
	actionResult
	key, value string // the entry
	reason     string // why there is no entry
}

type actionResult int

const (
	added   actionResult = iota // the action adds an entry
	skipped                     // it adds no entry, and the descriptor is sent without it
	dropped                     // it drops the descriptor
	unknown                     // the configuration and the request do not decide between the others
)

func entry(key, value string) effect { return effect{key: key, value: value} }

func undetermined(reason string) effect { return effect{actionResult: unknown, reason: reason} }

// act evaluates an action.
func (d *deriver) act(a *routev3.RateLimit_Action) effect {
	switch by := a.GetActionSpecifier().(type) {
	case *routev3.RateLimit_Action_SourceCluster_:
		if d.sourceCluster == "" {
			return undetermined("source_cluster: the name of Envoy's cluster is not in the file: set --service-cluster")
		}
		return entry("source_cluster", d.sourceCluster)
	case *routev3.RateLimit_Action_DestinationCluster_:
		cluster, err := d.destination()
		if err != nil {
			return undetermined("destination_cluster: " + err.Error())
		}
		return entry("destination_cluster", cluster)
	case *routev3.RateLimit_Action_RequestHeaders_:
		name := by.RequestHeaders.GetHeaderName()
		values := d.request.header(name)
		if len(values) == 0 {
			return whenAbsent(by.RequestHeaders.GetSkipIfAbsent(), "the request has no header "+name+addedByEnvoy(name))
		}
		return entry(by.RequestHeaders.GetDescriptorKey(), values[0])
	case *routev3.RateLimit_Action_QueryParameters_:
		name := by.QueryParameters.GetQueryParameterName()
		value, found := first(d.request.decodedParameters(), name)
		if !found {
			return whenAbsent(by.QueryParameters.GetSkipIfAbsent(), "the query has no parameter "+name)
		}
		return entry(by.QueryParameters.GetDescriptorKey(), value)
	case *routev3.RateLimit_Action_GenericKey_:
		return entry(cmp.Or(by.GenericKey.GetDescriptorKey(), "generic_key"), by.GenericKey.GetDescriptorValue())
	case *routev3.RateLimit_Action_HeaderValueMatch_:
		m := by.HeaderValueMatch
		ok, err := matchHeaders(m.GetHeaders(), d.request)
		expected := m.GetExpectMatch() == nil || m.GetExpectMatch().GetValue()
		return entry(cmp.Or(m.GetDescriptorKey(), "header_match"), m.GetDescriptorValue()).when(ok == expected, err, "the headers "+matching(ok))
	case *routev3.RateLimit_Action_QueryParameterValueMatch_:
		m := by.QueryParameterValueMatch
		ok, err := matchParameters(m.GetQueryParameters(), d.request.decodedParameters())
		expected := m.GetExpectMatch() == nil || m.GetExpectMatch().GetValue()
		return entry(cmp.Or(m.GetDescriptorKey(), "query_match"), m.GetDescriptorValue()).when(ok == expected, err, "the query "+matching(ok))
	case *routev3.RateLimit_Action_Metadata:
		return d.metadata(by.Metadata)
	case *routev3.RateLimit_Action_DynamicMetadata:
		old := by.DynamicMetadata //nolint:staticcheck // deprecated, and Envoy still takes it
		return d.metadata(&routev3.RateLimit_Action_MetaData{
			DescriptorKey: old.GetDescriptorKey(), MetadataKey: old.GetMetadataKey(), DefaultValue: old.GetDefaultValue(),
		})
	case *routev3.RateLimit_Action_Extension:
		return d.expression(by.Extension)
	}
	return d.address(a)
}

// expression evaluates an action that is a CEL expression. Only an attribute of the request is
// supported.
func (d *deriver) expression(extension *corev3.TypedExtensionConfig) effect {
	var e exprv3.Descriptor
	if err := extension.GetTypedConfig().UnmarshalTo(&e); err != nil {
		return undetermined(fmt.Sprintf("the extension %s is not supported", extension.GetName()))
	}
	path, _, _ := strings.Cut(d.request.Path, "?")
	attributes := map[string]string{
		"request.url_path": path, "request.path": d.request.Path, "request.method": d.request.Method, "request.host": d.request.Host,
	}
	value, ok := attributes[strings.TrimSpace(e.GetText())]
	if !ok {
		return undetermined(fmt.Sprintf("the expression %s is not supported", e.GetText()))
	}
	return entry(e.GetDescriptorKey(), value)
}

// address evaluates the actions that send the address of the client.
func (d *deriver) address(a *routev3.RateLimit_Action) effect {
	address := d.request.RemoteAddress.Unmap()
	needs := func(action string) effect {
		return undetermined(action + " needs the address of the client: set --remote-address")
	}
	switch by := a.GetActionSpecifier().(type) {
	case *routev3.RateLimit_Action_RemoteAddress_:
		if !address.IsValid() {
			return needs("remote_address")
		}
		return entry("remote_address", address.String())
	case *routev3.RateLimit_Action_MaskedRemoteAddress_:
		if !address.IsValid() {
			return needs("masked_remote_address")
		}
		bits, mask := 32, by.MaskedRemoteAddress.GetV4PrefixMaskLen()
		if address.Is6() {
			bits, mask = 128, by.MaskedRemoteAddress.GetV6PrefixMaskLen()
		}
		if mask != nil {
			bits = int(min(mask.GetValue(), 128))
		}
		prefix, err := address.WithZone("").Prefix(bits)
		if err != nil {
			return undetermined("masked_remote_address: " + err.Error())
		}
		return entry("masked_remote_address", prefix.String())
	case *routev3.RateLimit_Action_RemoteAddressMatch_:
		if !address.IsValid() {
			return needs("remote_address_match")
		}
		m := by.RemoteAddressMatch
		ok, err := inRanges(m.GetAddressMatcher().GetRanges(), address)
		text := cmp.Or(m.GetDescriptorValue(), m.GetDefaultValue())
		const direct = "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"
		text = strings.ReplaceAll(text, direct, address.String())
		if err == nil && strings.Contains(text, "%") {
			err = errors.New("the value " + m.GetDescriptorValue() + " has a command that is not supported")
		}
		ok = ok != m.GetAddressMatcher().GetInvertMatch()
		return entry(cmp.Or(m.GetDescriptorKey(), "remote_address_match"), text).when(ok, err, "the address of the client "+matching(ok))
	}
	return undetermined("the action is not supported")
}

func inRanges(ranges []*xdscorev3.CidrRange, address netip.Addr) (bool, error) {
	for _, r := range ranges {
		text := fmt.Sprintf("%s/%d", r.GetAddressPrefix(), r.GetPrefixLen().GetValue())
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return false, err
		}
		if prefix.Masked().Contains(address) {
			return true, nil
		}
	}
	return false, nil
}

// when returns e if a condition holds, and otherwise drops the descriptor for a reason. err reports
// that the condition is undecidable.
func (e effect) when(holds bool, err error, reason string) effect {
	switch {
	case err != nil:
		return undetermined(err.Error())
	case !holds:
		return effect{actionResult: dropped, reason: reason}
	}
	return e
}

// metadata evaluates an action that reads metadata. Only metadata that is text becomes a value.
func (d *deriver) metadata(m *routev3.RateLimit_Action_MetaData) effect {
	path := pathOf(m.GetMetadataKey())
	var value, where string
	switch m.GetSource() {
	case routev3.RateLimit_Action_MetaData_DYNAMIC:
		value, where = d.request.Metadata[path], "the dynamic metadata (--metadata)"
	case routev3.RateLimit_Action_MetaData_ROUTE_ENTRY:
		var of corev3.Metadata
		if t := d.route.tree.Field("metadata"); t.Exists() {
			if err := decode(t, &of); err != nil {
				return undetermined(err.Error())
			}
		}
		value, where = textAt(&of, m.GetMetadataKey()), "the metadata of the route"
	case routev3.RateLimit_Action_MetaData_CLUSTER_ENTRY:
		cluster, err := d.destination()
		of, known := d.clusters[cluster]
		if err != nil || !known {
			return undetermined("metadata: the cluster of the route is not in the file")
		}
		value, where = textAt(of, m.GetMetadataKey()), "the metadata of the cluster"
	default:
		return undetermined(fmt.Sprintf("metadata from %s is not supported", m.GetSource()))
	}
	value = cmp.Or(value, m.GetDefaultValue())
	if value != "" {
		return entry(m.GetDescriptorKey(), value)
	}
	return whenAbsent(m.GetSkipIfAbsent(), where+" has no text at "+path)
}

// pathOf returns the path of metadata as --metadata has it: namespace:key.path.
func pathOf(key *metadatav3.MetadataKey) string {
	var path []string
	for _, segment := range key.GetPath() {
		path = append(path, segment.GetKey())
	}
	return key.GetKey() + ":" + strings.Join(path, ".")
}

// textAt returns the text at a path of metadata, or "".
func textAt(metadata *corev3.Metadata, key *metadatav3.MetadataKey) string {
	value := structpb.NewStructValue(metadata.GetFilterMetadata()[key.GetKey()])
	for _, segment := range key.GetPath() {
		value = value.GetStructValue().GetFields()[segment.GetKey()]
	}
	return value.GetStringValue()
}

// destination returns the cluster of the route.
func (d *deriver) destination() (string, error) {
	action := d.route.tree.Field("route")
	if name := action.Field("cluster").Text(); name != "" {
		return name, nil
	}
	if name := action.Field("cluster_header").Text(); name != "" {
		if values := d.request.header(name); len(values) > 0 {
			return values[0], nil
		}
		return "", errors.New("the header " + name + " names the cluster, and the request does not have it")
	}
	if all := action.Field("weighted_clusters", "clusters").Items(); len(all) == 1 {
		return all[0].Field("name").Text(), nil
	}
	return "", errors.New("the route does not name one cluster")
}

// whenAbsent returns the effect of an action without a value.
func whenAbsent(skip bool, reason string) effect {
	if skip {
		return effect{actionResult: skipped, reason: reason}
	}
	return effect{actionResult: dropped, reason: reason}
}

// addedByEnvoy notes that Envoy itself may add the header of an action.
func addedByEnvoy(name string) string {
	prefixes := []string{"x-envoy-", "x-forwarded-", "x-request-id"}
	if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(strings.ToLower(name), p) }) {
		return ", which Envoy may add"
	}
	return ""
}

func matching(ok bool) string {
	if ok {
		return "match"
	}
	return "do not match"
}
