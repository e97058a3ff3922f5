(* Maps and strings of OCaml: made, folded, changed. With one argument, how many. *)
module Map = Map.Make (String)

let key i = Printf.sprintf "key %d" (i * 2654435761 mod 4294967296)

let () =
  let count = int_of_string Sys.argv.(1) in
  let rec fill map i = if i > count then map else fill (Map.add (key i) [ i; i * 7 mod 1001 ] map) (i + 1) in
  let map = fill Map.empty 1 in
  let sum = Map.fold (fun _ parts sum -> List.fold_left ( + ) sum parts) map 0 in
  let rec change map i =
    if i > count then map else change (Map.update (key i) (Option.map (fun parts -> i :: parts)) map) (i + 4)
  in
  let map = change map 1 in
  let sum = Map.fold (fun _ parts sum -> sum + List.length parts) map sum in
  Printf.printf "%d %d\n" count sum
