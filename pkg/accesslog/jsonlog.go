package accesslog

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// A jsonLog reads one JSON object a line.
type jsonLog struct {
	in     *lines
	object map[string]any
}

func (j *jsonLog) next() (int64, Reason, error) {
	for {
		line, tooLong, err := j.in.next()
		switch {
		case err != nil:
			return 0, "", err
		case tooLong:
			return j.in.number, TooLong, nil
		case len(bytes.TrimSpace(line)) == 0:
			continue
		}
		j.object = nil
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.UseNumber()
		if decoder.Decode(&j.object) != nil || j.object == nil || len(bytes.TrimSpace(line[decoder.InputOffset():])) > 0 {
			return j.in.number, NotJSON, nil
		}
		return j.in.number, "", nil
	}
}

// field returns a member of the object. A dot leads into an object, unless a member has the whole name.
func (j *jsonLog) field(name string) (string, bool) { return member(j.object, name) }

func member(object map[string]any, name string) (string, bool) {
	if found, ok := object[name]; ok {
		switch v := found.(type) {
		case string:
			return v, true
		case json.Number:
			return v.String(), true
		case bool:
			return strconv.FormatBool(v), true
		}
		return "", false // null, a list or an object
	}
	for at := 0; ; {
		dot := strings.IndexByte(name[at:], '.')
		if dot < 0 {
			return "", false
		}
		at += dot
		if inner, ok := object[name[:at]].(map[string]any); ok {
			return member(inner, name[at+1:])
		}
		at++
	}
}
