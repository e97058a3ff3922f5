;; Emacs Lisp: lists, tables, strings and a large buffer. Argument: scale.
(let* ((scale (string-to-number (car command-line-args-left))) (table (make-hash-table :test 'equal)) (sum 0) kept)
  (dotimes (i (* 250000 scale))
    (puthash (format "name %d" (% (* i 7919) 1000003)) (list i (* i 2) (make-string 20 (+ 97 (% i 26)))) table)
    (when (zerop (% i 3)) (push (cons i (number-to-string i)) kept)))
  (maphash (lambda (_ v) (setq sum (+ sum (car v) (length (nth 2 v))))) table)
  (princ (format "%d %d %d\n" (hash-table-count table) sum (length (sort kept (lambda (a b) (string< (cdr a) (cdr b)))))))
  (with-temp-buffer
    (dotimes (i (* 100000 scale)) (insert (format "line %d of text\n" i)))
    (goto-char (point-min))
    (let ((n 0)) (while (re-search-forward "7 of \\(text\\)" nil t) (setq n (1+ n)) (replace-match "words" t t nil 1)) (princ (format "%d\n" n)))
    (princ (format "%s %s\n" (buffer-size) (secure-hash 'sha256 (current-buffer))))))
