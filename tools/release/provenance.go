package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/weir-rls/weir/tools/image/oci"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	sums          = "SHA256SUMS"
	predicateType = "https://slsa.dev/provenance/v1"
	buildType     = oci.Source + "/blob/main/docs/install.md#provenance"
	builder       = oci.Source + "/blob/main/tools/release"
)

// A digest is the SHA-256 of a file, in hexadecimal.
type digest struct{ name, sha256 string }

type digestList []digest

// String returns the list in the form of sha256sum.
func (l digestList) String() string {
	var out strings.Builder
	for _, d := range l {
		out.WriteString(d.sha256 + "  " + d.name + "\n")
	}
	return out.String()
}

// digests returns the digests of the files in dir, sorted by name.
func digests(dir string) (digestList, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all digestList
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(data)
		all = append(all, digest{e.Name(), hex.EncodeToString(sum[:])})
	}
	return all, nil
}

// writeProvenance writes an in-toto statement about the files in o.out. It has no time and no id of
// a run, so each build of a commit writes the same bytes. The certificate of its signature names
// the run.
func writeProvenance(o options, builds []*oci.Build) error {
	b := builds[0]
	files, err := digests(o.out)
	if err != nil {
		return err
	}
	var subjects []*intoto.ResourceDescriptor
	for _, f := range files {
		subjects = append(subjects, &intoto.ResourceDescriptor{Name: f.name, Digest: map[string]string{"sha256": f.sha256}})
	}
	resolved, err := dependencies(builds)
	if err != nil {
		return err
	}
	parameters, err := structpb.NewStruct(map[string]any{
		"version": b.Version, "image": o.name, "platforms": strings.Join(o.platforms, ","),
	})
	if err != nil {
		return err
	}
	provenance := &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{BuildType: buildType, ExternalParameters: parameters, ResolvedDependencies: resolved},
		RunDetails:      &slsa.RunDetails{Builder: &slsa.Builder{Id: builder}},
	}
	if err := provenance.Validate(); err != nil {
		return err
	}
	predicate := &structpb.Struct{}
	data, err := protojson.Marshal(provenance)
	if err != nil {
		return err
	}
	if err := protojson.Unmarshal(data, predicate); err != nil {
		return err
	}
	statement := &intoto.Statement{Type: intoto.StatementTypeUri, Subject: subjects, PredicateType: predicateType, Predicate: predicate}
	if err := statement.Validate(); err != nil {
		return err
	}
	return writeJSON(filepath.Join(o.out, "weir-"+b.Version+".intoto.json"), statement)
}

// writeJSON writes a message in one form. protojson alone varies its spaces.
func writeJSON(path string, m proto.Message) error {
	data, err := protojson.Marshal(m)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, data, "", "  "); err != nil {
		return err
	}
	out.WriteByte('\n')
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// dependencies returns the commit, the Go release, and each module that is linked into a binary or
// copied into the image.
func dependencies(builds []*oci.Build) ([]*intoto.ResourceDescriptor, error) {
	b := builds[0]
	all := []*intoto.ResourceDescriptor{
		{Uri: "git+" + oci.Source, Digest: map[string]string{"gitCommit": b.Revision}},
		{Uri: oci.PackageURL("stdlib", strings.TrimPrefix(b.Info.GoVersion, "go")), Name: b.Info.GoVersion},
	}
	authorities, err := oci.Authorities()
	if err != nil {
		return nil, err
	}
	modules := map[string]*debug.Module{oci.PackageURL(authorities.Path, authorities.Version): authorities}
	for _, b := range builds {
		for _, m := range b.Info.Deps {
			for m.Replace != nil {
				m = m.Replace
			}
			modules[oci.PackageURL(m.Path, m.Version)] = m
		}
	}
	for _, url := range slices.Sorted(maps.Keys(modules)) {
		sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(modules[url].Sum, "h1:"))
		if err != nil || len(sum) != sha256.Size {
			return nil, fmt.Errorf("%s has the sum %q in go.sum, want h1: and 32 bytes in base64", url, modules[url].Sum)
		}
		all = append(all, &intoto.ResourceDescriptor{Uri: url, Digest: map[string]string{"dirHash": hex.EncodeToString(sum)}})
	}
	return all, nil
}
