;; Spends the log of the call before it was asked anything.
(module
  (import "fusebox" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 2)
  (func (export "fb_abi_1"))
  (func (export "fb_buf") (param i32) (result i32)
    (local $i i32)
    (loop $l
      (call $log (i32.const 3) (i32.const 64) (i32.const 37))
      (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 100))))
    (i32.const 4096))
  (func (export "fb_fallback") (param i32 i32) (result i64) (i64.const 0))
  (data (i32.const 64) "{\22outcome\22:\22FAILED\22,\22class\22:\22budget\22}")
  (func (export "fb_classify") (param $p i32) (param $n i32) (result i64) (i64.const 274877906981))
)
