;; Twenty loops inside each other, all empty but the last branch.
(module
  (memory (export "memory") 2)
  (func (export "fb_abi_1"))
  (func (export "fb_buf") (param i32) (result i32) (i32.const 4096))
  (func (export "fb_fallback") (param i32 i32) (result i64) (i64.const 0))
  (data (i32.const 64) "{\"outcome\":\"FAILED\",\"class\":\"budget\"}")
  (func (export "fb_classify") (param $p i32) (param $n i32) (result i64)
    (loop $l0 (loop $l1 (loop $l2 (loop $l3 (loop $l4 (loop $l5 (loop $l6 (loop $l7 (loop $l8 (loop $l9 (loop $l10 (loop $l11 (loop $l12 (loop $l13 (loop $l14 (loop $l15 (loop $l16 (loop $l17 (loop $l18 (loop $l19 (br_if $l0 (i32.const 1))))))))))))))))))))))
    (i64.const 0))
)
