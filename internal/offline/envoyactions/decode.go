package envoyactions

import (
	"encoding/json"
	"regexp"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/weir-rls/weir/internal/offline/yamltree"
)

// hasType reports whether an Any has a message of a type, such as
// envoy.config.route.v3.FilterConfig.
func hasType(t yamltree.Tree, message string) bool {
	return strings.HasSuffix(t.Field("@type").Text(), "/"+message)
}

// errorPrefix matches the beginning of an error of protojson, with a line and a column in a copy in
// JSON that the user has never seen.
var errorPrefix = regexp.MustCompile(`^proto:[\s\x{a0}]*(syntax error )?(\(line \d+:\d+\):[\s\x{a0}]*)?`)

// decode decodes a value into a message. An unknown field is an error.
func decode(t yamltree.Tree, into proto.Message) error {
	value, err := t.Value()
	if err != nil {
		return err
	}
	if fields, ok := value.(map[string]any); ok {
		delete(fields, "@type")
	}
	data, err := json.Marshal(plain(value))
	if err != nil {
		return t.Errorf("no value of JSON: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if err := protojson.Unmarshal(data, into); err != nil {
		return t.Errorf("no valid %s: %s", into.ProtoReflect().Descriptor().FullName(), errorPrefix.ReplaceAllString(err.Error(), ""))
	}
	return nil
}

// plain replaces messages of unknown types by structs, which protojson can decode. Their type
// becomes the field @type.
func plain(value any) any {
	switch v := value.(type) {
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		if url, ok := v["@type"].(string); ok {
			if _, err := protoregistry.GlobalTypes.FindMessageByURL(url); err != nil {
				return map[string]any{"@type": "type.googleapis.com/google.protobuf.Struct", "value": v}
			}
		}
		for key := range v {
			v[key] = plain(v[key])
		}
	}
	return value
}
