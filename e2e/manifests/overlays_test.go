// Package manifests tests deploy/k8s, its dashboard and alerts, and the guides in docs/. The tests
// need no cluster: kustomize's library builds the overlays, Kubernetes' types parse them, and the
// tests run their containers as processes.
package manifests

import (
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/weir-rls/weir/internal/must"
)

const (
	root = "../.."
	k8s  = root + "/deploy/k8s"
)

// An object is a Kubernetes object of an overlay, as YAML and as its API type.
type object struct {
	kind, namespace, name string
	yaml                  []byte
	typed                 runtime.Object
}

func (o object) String() string { return o.kind + " " + o.namespace + "/" + o.name }

func (o object) meta() metav1.Object { return o.typed.(metav1.Object) }

// An overlay holds the objects that kustomize builds from one folder.
type overlay struct {
	name    string
	dir     string
	objects []object
}

// build returns the objects that `kubectl apply -k DIR` applies.
func build(t *testing.T, dir string) overlay {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatalf("kustomize build %s: %v", dir, err)
	}
	all := overlay{name: filepath.Base(dir), dir: dir}
	for _, r := range built.Resources() {
		text, err := r.AsYAML()
		must.Succeed(t, err)
		o := object{kind: r.GetKind(), namespace: r.GetNamespace(), name: r.GetName(), yaml: text}
		if o.typed, err = decode(text); err != nil {
			t.Fatalf("%s: %v: %v", dir, o, err)
		}
		all.objects = append(all.objects, o)
	}
	return all
}

// eachOverlay runs a test on the base and on every overlay.
func eachOverlay(t *testing.T, test func(t *testing.T, all overlay)) {
	t.Helper()
	for _, dir := range overlayDirs(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) { test(t, build(t, dir)) })
	}
}

func overlayDirs(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob(k8s + "/overlays/*")
	if err != nil || len(dirs) < 10 {
		t.Fatalf("%d overlays: this test checks too little (%v)", len(dirs), err)
	}
	return append(dirs, k8s+"/base")
}

// of returns the objects of one type.
func of[T runtime.Object](all overlay) []T {
	var found []T
	for _, o := range all.objects {
		if typed, ok := o.typed.(T); ok {
			found = append(found, typed)
		}
	}
	return found
}

// named returns the object of that type and name, nil if there is none.
func named[T interface {
	runtime.Object
	metav1.Object
}](all overlay, name string) (none T) {
	for _, o := range of[T](all) {
		if o.GetName() == name {
			return o
		}
	}
	return none
}

// generated returns the ConfigMap of a generator, whose name may end with a hash.
func (all overlay) generated(t *testing.T, name string) *corev1.ConfigMap {
	t.Helper()
	for _, m := range of[*corev1.ConfigMap](all) {
		if m.Name == name || strings.HasPrefix(m.Name, name+"-") && len(m.Name) == len(name)+11 {
			return m
		}
	}
	t.Fatalf("%s: no ConfigMap %s", all.name, name)
	return nil
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text := must.Read(t, path)
	return string(text)
}

// fromYAML parses YAML into a value and fails the test on an unknown field.
func fromYAML(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}
