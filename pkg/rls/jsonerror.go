package rls

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/weir-rls/weir/internal/spelling"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// writeRequest is the remedy for an invalid body.
const writeRequest = `write a RateLimitRequest such as {"domain":"shop","descriptors":[{"entries":[{"key":"user_id","value":"42"}]}]}`

// explainJSON returns a readable error for a body that protojson rejected with cause. It looks for
// a syntax error, then an unknown field, then a value of the wrong type.
func explainJSON(body []byte, message protoreflect.MessageDescriptor, cause error) error {
	if len(strings.TrimSpace(string(body))) == 0 {
		return errors.New("the body is empty: " + writeRequest)
	}
	var syntax json.RawMessage
	if err := json.Unmarshal(body, &syntax); err != nil {
		line, column := position(body, err)
		return fmt.Errorf("line %d, column %d: not JSON (%w): %s", line, column, err, writeRequest)
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber() // a float64 would round large numbers
	var value any
	if err := decoder.Decode(&value); err != nil {
		return err
	}
	if err := checkMessage("", value, message); err != nil {
		return err
	}
	text := strings.TrimPrefix(strings.ReplaceAll(cause.Error(), "\u00a0", " "), "proto: ") // protojson varies the space
	return fmt.Errorf("not a RateLimitRequest: %s", excerpt(text))
}

// position returns the line and column, in characters from 1, of a JSON syntax error.
func position(body []byte, err error) (line, column int) {
	offset := len(body)
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		offset = min(offset, max(0, int(syntax.Offset)-1))
	}
	before := string(body[:offset])
	return 1 + strings.Count(before, "\n"), 1 + utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
}

// checkMessage returns the first error in a JSON value of a message type. path locates the value;
// "" is the body.
func checkMessage(path string, value any, message protoreflect.MessageDescriptor) error {
	object, ok := value.(map[string]any)
	if !ok {
		return wrongType(path, "an object", value)
	}
	fields := message.Fields()
	for _, name := range slices.Sorted(maps.Keys(object)) {
		field := fields.ByJSONName(name)
		if field == nil {
			field = fields.ByTextName(name)
		}
		fieldPath := strings.TrimPrefix(path+"."+name, ".")
		if field == nil {
			return unknownField(fieldPath, name, fields)
		}
		if err := checkField(fieldPath, object[name], field); err != nil {
			return err
		}
	}
	return nil
}

func checkField(path string, value any, field protoreflect.FieldDescriptor) error {
	if value == nil { // null means absent
		return nil
	}
	if !field.IsList() {
		return checkValue(path, value, field)
	}
	list, ok := value.([]any)
	if !ok {
		return wrongType(path, "a list", value)
	}
	for i := range list {
		if err := checkValue(fmt.Sprintf("%s[%d]", path, i), list[i], field); err != nil {
			return err
		}
	}
	return nil
}

func checkValue(path string, value any, field protoreflect.FieldDescriptor) error {
	switch field.Kind() {
	case protoreflect.MessageKind:
		if field.Message().FullName().Parent() == "google.protobuf" { // a wrapper: in JSON, its value
			return checkValue(path, value, field.Message().Fields().ByName("value"))
		}
		return checkMessage(path, value, field.Message())
	case protoreflect.StringKind:
		if _, ok := value.(string); !ok {
			return wrongType(path, "a string", value)
		}
	case protoreflect.BoolKind:
		if _, ok := value.(bool); !ok {
			return wrongType(path, "true or false", value)
		}
	case protoreflect.Uint32Kind:
		return checkUint(path, value, 32)
	case protoreflect.Uint64Kind:
		return checkUint(path, value, 64)
	case protoreflect.EnumKind:
		name, ok := value.(string)
		if values := field.Enum().Values(); ok && values.ByName(protoreflect.Name(name)) == nil {
			names := make([]string, values.Len())
			for i := range names {
				names[i] = string(values.Get(i).Name())
			}
			return fmt.Errorf("%s: unknown value %s: want one of %s", path, quoted(name), strings.Join(names, ", "))
		}
	}
	return nil
}

// checkUint returns an error unless value is a whole number that fits into an unsigned integer of
// that many bits, or a string with one.
func checkUint(path string, value any, bits int) error {
	var number, got string
	switch v := value.(type) {
	case json.Number:
		number, got = v.String(), excerpt(v.String())
	case string:
		number, got = v, quoted(v)
	default:
		return wrongType(path, "a whole number", value)
	}
	if _, err := strconv.ParseUint(number, 10, bits); err == nil {
		return nil
	}
	if f, err := strconv.ParseFloat(number, 64); err == nil && f >= 0 && f < math.Ldexp(1, bits) && f == math.Trunc(f) {
		return nil // such as 1e3
	}
	return fmt.Errorf("%s: want a whole number from 0 to %d, got %s", path, uint64(math.MaxUint64)>>(64-bits), got)
}

func wrongType(path, want string, value any) error {
	got := "null"
	switch value.(type) {
	case map[string]any:
		got = "an object"
	case []any:
		got = "a list"
	case string:
		got = "a string"
	case json.Number:
		got = "a number"
	case bool:
		got = "a boolean"
	}
	if path == "" {
		path = "the body"
	}
	return fmt.Errorf("%s: want %s, got %s", path, want, got)
}

func unknownField(path, name string, fields protoreflect.FieldDescriptors) error {
	prefix := ""
	if inner := strings.TrimSuffix(strings.TrimSuffix(path, name), "."); inner != "" {
		prefix = inner + ": "
	}
	var spellings []string
	for i := range fields.Len() {
		spellings = append(spellings, fields.Get(i).JSONName(), fields.Get(i).TextName())
	}
	if nearest := spelling.Nearest(name, spellings); nearest != "" {
		return fmt.Errorf("%sunknown field %s, did you mean %q?", prefix, quoted(name), nearest)
	}
	known := make([]string, fields.Len())
	for i := range known {
		known[i] = fields.Get(i).TextName()
	}
	return fmt.Errorf("%sunknown field %s: want one of %s", prefix, quoted(name), strings.Join(known, ", "))
}

// maxQuotedBytes bounds the text of a client that an error quotes.
const maxQuotedBytes = 100

func quoted(s string) string { return fmt.Sprintf("%q", excerpt(s)) }

// excerpt truncates a text of a client.
func excerpt(s string) string { return descriptors.Truncate(s, maxQuotedBytes) }
