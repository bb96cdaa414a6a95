;; Where a module in the text format begins: a classifier with one rule. A
;; document that holds ,"status":503} (the end of the response) is a maintenance.
(module
  (memory (export "memory") 2)
  (func (export "fb_abi_1"))
  (func (export "fb_buf") (param $cap i32) (result i32)
    (select (i32.const 1024) (i32.const 0) (i32.le_u (local.get $cap) (i32.const 130048))))

  (data (i32.const 16) ",\"status\":503}")
  (data (i32.const 64) "{\"outcome\":\"FAILED\",\"class\":\"persistent_dependency\",\"reason\":\"maintenance\"}")

  (func (export "fb_classify") (param $p i32) (param $n i32) (result i64)
    (local $end i32) (local $k i32)
    (local.set $end (i32.sub (i32.add (local.get $p) (local.get $n)) (i32.const 14)))
    (block $none
      (loop $next
        (br_if $none (i32.gt_u (local.get $p) (local.get $end)))
        (local.set $k (i32.const 0))
        (block $differs
          (loop $compare
            (br_if $differs (i32.ne
              (i32.load8_u (i32.add (local.get $p) (local.get $k)))
              (i32.load8_u offset=16 (local.get $k))))
            (br_if $compare (i32.lt_u (local.tee $k (i32.add (local.get $k) (i32.const 1))) (i32.const 14))))
          ;; place 64, length 75: an answer
          (return (i64.const 0x000000400000004b)))
        (local.set $p (i32.add (local.get $p) (i32.const 1)))
        (br $next)))
    (i64.const 0)))
