package sdk

// nearest returns the name that a mistyped one was probably meant to be, "" if
// none is close: at most one edit for every three letters, and one at least.
func nearest(word string, names []string) string {
	best, least := "", max(len(word)/3, 1)+1
	for _, n := range names {
		if d := edits(word, n); d < least {
			best, least = n, d
		}
	}
	return best
}

// edits counts the insertions, deletions, substitutions and swaps of
// neighbours between two words.
func edits(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
