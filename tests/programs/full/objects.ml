(* Records, hash tables and strings: built, changed, dropped, looked up in another order, and compacted. Argument: scale. *)
type point = { n : int; name : string; more : int list }

let () =
  let count = 150000 * int_of_string Sys.argv.(1) in
  let point i n text = { n; name = Printf.sprintf "%s-%d" text (i * 7919 mod count); more = [ n; 2 * n ] } in
  let points = Array.init count (fun i -> Some (point i i "point")) in
  let get i = match points.(i) with Some p -> p | None -> failwith "it was dropped" in
  let all f = for i = 0 to count - 1 do f i (get i) done in
  let sum = ref 0 in
  all (fun _ p -> sum := !sum + List.nth p.more 1);
  Printf.printf "%d\n" !sum;
  let index = Hashtbl.create 1000 in
  all (fun i p -> Hashtbl.add index p.name i);
  Printf.printf "%d\n" (Hashtbl.length index);
  let thirds f = for i = 0 to (count - 1) / 3 do f (3 * i) done in
  thirds (fun i -> points.(i) <- None);
  Gc.compact ();
  thirds (fun i -> points.(i) <- Some (point i (i + 1) "again"));
  let x = ref 12345 and total = ref 0 in
  for _ = 1 to 200000 do
    x := ((!x * 1103515245) + 12345) mod 2147483648;
    let p = get (!x mod count) in
    total := !total + String.length p.name + p.n + Hashtbl.find index ("point-" ^ string_of_int (!x mod count))
  done;
  Printf.printf "%d\n" !total;
  let names = List.sort compare (Hashtbl.fold (fun name _ names -> name :: names) index []) in
  print_endline (Digest.to_hex (Digest.string (String.concat "," names)));
  all (fun _ p -> sum := ((!sum * 31) + Hashtbl.hash p) mod 1000000007);
  Printf.printf "%d\n" !sum;
  let copy : point option array = Marshal.from_string (Marshal.to_string points []) 0 in
  Printf.printf "%b\n" (copy = points)
