// Package jsonscan is the one pull parser of fusebox.
package jsonscan
