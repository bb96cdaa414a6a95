package policies

import "github.com/google/go-cmp/cmp"

func differ(want, got any) string { return cmp.Diff(want, got) }
