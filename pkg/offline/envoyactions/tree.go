package envoyactions

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// maxNodes bounds the nodes of a file with its aliases replaced, because a few lines of aliases could exhaust the memory.
const maxNodes = 1 << 20

// A tree is a value in a file, with its line. The zero tree is an absent field.
type tree struct {
	file string
	node *yaml.Node
}

// readTree reads one document of YAML or JSON.
func readTree(file string, data []byte) (tree, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	if err := decoder.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return tree{}, fmt.Errorf("%s: the file is empty: want a bootstrap, a listener, a route configuration, a virtual host or a route", file)
		}
		return tree{}, errors.New(rulesfile.SyntaxFault(rulesfile.File{Name: file, Data: data}, err).String())
	}
	if err := decoder.Decode(&second); err == nil {
		return tree{}, fmt.Errorf("%s:%d: a second document: Envoy reads only one", file, second.Line)
	}
	budget := maxNodes
	if err := expand(&doc, &budget, 0); err != nil {
		return tree{}, fmt.Errorf("%s: %w", file, err)
	}
	return tree{file, doc.Content[0]}, nil
}

// expand replaces aliases by the nodes that they name. budget is the number of nodes that may still be added.
func expand(n *yaml.Node, budget *int, depth int) error {
	const maxDepth = 200
	if *budget--; *budget < 0 || depth > maxDepth {
		return fmt.Errorf("line %d: the document is too large or too deep, with its aliases replaced: "+
			"pass only the route configuration, the virtual host or the route", n.Line)
	}
	for i, child := range n.Content {
		if child.Kind == yaml.AliasNode {
			copied := *child.Alias
			copied.Content = append([]*yaml.Node(nil), copied.Content...)
			copied.Anchor = ""
			n.Content[i], child = &copied, &copied
		}
		if isKey := n.Kind == yaml.MappingNode && i%2 == 0; !isKey {
			asBoolean(child)
		}
		if err := expand(child, budget, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// asBoolean makes a scalar a boolean if it is one in YAML 1.1, which Envoy reads. The decoder reads YAML 1.2.
func asBoolean(n *yaml.Node) {
	if n.Kind != yaml.ScalarNode || n.Style != 0 {
		return
	}
	switch strings.ToLower(n.Value) {
	case "y", "yes", "on", "true":
		n.Tag, n.Value = "!!bool", "true"
	case "n", "no", "off", "false":
		n.Tag, n.Value = "!!bool", "false"
	}
}

func (t tree) exists() bool { return t.node != nil && t.node.Tag != "!!null" }

// source returns the file and line, such as envoy.yaml:12.
func (t tree) source() string { return t.file + ":" + strconv.Itoa(t.node.Line) }

func (t tree) errorf(format string, values ...any) error {
	return fmt.Errorf("%s: "+format, append([]any{t.source()}, values...)...)
}

// get returns the field at a path of names. Like Envoy, it also accepts each name in camelCase.
func (t tree) get(names ...string) tree {
	for _, name := range names {
		t = t.member(name, camelCase(name))
	}
	return t
}

func (t tree) member(name, alias string) tree {
	if t.node == nil || t.node.Kind != yaml.MappingNode {
		return tree{file: t.file}
	}
	for i := 0; i+1 < len(t.node.Content); i += 2 {
		if key := t.node.Content[i].Value; key == name || key == alias {
			return tree{t.file, t.node.Content[i+1]}
		}
	}
	return tree{file: t.file}
}

func camelCase(name string) string {
	parts := strings.Split(name, "_")
	for i := 1; i < len(parts); i++ {
		if parts[i] != "" {
			parts[i] = strings.ToUpper(parts[i][:1]) + parts[i][1:]
		}
	}
	return strings.Join(parts, "")
}

// items returns the elements of a list.
func (t tree) items() []tree {
	if t.node == nil || t.node.Kind != yaml.SequenceNode {
		return nil
	}
	all := make([]tree, len(t.node.Content))
	for i, n := range t.node.Content {
		all[i] = tree{t.file, n}
	}
	return all
}

// text returns a scalar, or "".
func (t tree) text() string {
	if t.node == nil || t.node.Kind != yaml.ScalarNode || t.node.Tag == "!!null" {
		return ""
	}
	return t.node.Value
}

// hasType reports whether the Any has a message of a type, such as envoy.config.route.v3.FilterConfig.
func (t tree) hasType(message string) bool {
	return strings.HasSuffix(t.get("@type").text(), "/"+message)
}

// position matches the position in an error of protojson. The position refers to a copy in JSON that the user has never seen.
var position = regexp.MustCompile(`^proto:[\s\x{a0}]*(syntax error )?(\(line \d+:\d+\):[\s\x{a0}]*)?`)

// decode decodes the value into a message. An unknown field is an error.
func (t tree) decode(into proto.Message) error {
	var value any
	if err := t.node.Decode(&value); err != nil {
		return t.errorf("%s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if fields, ok := value.(map[string]any); ok {
		delete(fields, "@type")
	}
	data, err := json.Marshal(plain(value))
	if err != nil {
		return t.errorf("no value of JSON: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if err := protojson.Unmarshal(data, into); err != nil {
		return t.errorf("no valid %s: %s", into.ProtoReflect().Descriptor().FullName(), position.ReplaceAllString(err.Error(), ""))
	}
	return nil
}

// plain replaces messages of unknown types by structs, which protojson can decode. Their type becomes the field @type.
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
