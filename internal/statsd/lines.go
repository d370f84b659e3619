package statsd

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A dialect formats lines of statsd (name:value|type) or dogstatsd, which appends tags.
type dialect struct {
	dog        bool
	suffix     string   // ends every name in statsd: the tags as envoyproxy/ratelimit writes them, .__key=value
	tags       []string // end every line in dogstatsd
	mogrifiers []Mogrifier
}

func newDialect(to *Destination) dialect {
	d := dialect{dog: to.Dog, tags: slices.Clone(to.DogTags), mogrifiers: to.Mogrifiers}
	for _, key := range slices.Sorted(maps.Keys(to.Tags)) {
		value := tagValue.Replace(to.Tags[key])
		switch {
		case key == "" || value == "":
		case to.Dog:
			d.tags = append(d.tags, key+":"+value)
		default:
			d.suffix += ".__" + key + "=" + value
		}
	}
	return d
}

var tagValue = strings.NewReplacer(".", "_", ":", "_", "|", "_", "\n", "_")

func (d *dialect) counter(dst []byte, name string, n uint64) []byte {
	dst, tags := d.name(dst, name)
	dst = strconv.AppendUint(append(dst, ':'), n, 10)
	return d.end(append(dst, "|c"...), tags)
}

// time appends a duration in milliseconds with a sample rate.
func (d *dialect) time(dst []byte, name string, took time.Duration, rate float64) []byte {
	dst, tags := d.name(dst, name)
	dst = strconv.AppendFloat(append(dst, ':'), float64(took.Microseconds())/1000, 'f', -1, 64)
	dst = append(dst, "|ms"...)
	if rate < 1 {
		dst = strconv.AppendFloat(append(dst, "|@"...), rate, 'f', 6, 64)
	}
	return d.end(dst, tags)
}

func (d *dialect) name(dst []byte, name string) ([]byte, []string) {
	if !d.dog {
		return append(append(dst, name...), d.suffix...), nil
	}
	name, tags := mogrify(d.mogrifiers, name)
	return append(dst, name...), tags
}

func (d *dialect) end(dst []byte, tags []string) []byte {
	before := "|#"
	for _, some := range [][]string{d.tags, tags} {
		for _, tag := range some {
			dst = append(append(dst, before...), tag...)
			before = ","
		}
	}
	return append(dst, '\n')
}

// DogTags returns the tags of Datadog's clients: the pod, and those of unified service tagging.
func DogTags(getenv func(string) string) []string {
	var tags []string
	for _, pair := range [][2]string{
		{"DD_ENTITY_ID", "dd.internal.entity_id"}, {"DD_ENV", "env"}, {"DD_SERVICE", "service"}, {"DD_VERSION", "version"},
	} {
		if value := getenv(pair[0]); value != "" {
			tags = append(tags, pair[1]+":"+strings.NewReplacer("|", "_", ",", "_", "\n", "_").Replace(value))
		}
	}
	return tags
}
