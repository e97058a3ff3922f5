{ Lists of strings, records and sorting in two threads at a time, and an exception made of a fault. Argument: scale.
  Free Pascal's own library makes its calls by instructions of its own, at fixed addresses. }
program objects;
{$mode objfpc}{$H+}
uses cthreads, Classes, SysUtils, Contnrs;

type
  TPoint = class
    n: int64;
    name: string;
  end;
  TWorker = class(TThread)
    count, sum: int64;
    names: TStringList;
    procedure Execute; override;
  end;

procedure TWorker.Execute;
var
  i: int64;
begin
  names := TStringList.Create;
  for i := 0 to count - 1 do
    names.Add(IntToStr(i * 7919 mod count) + '-name');
  names.Sort;
  for i := 0 to count - 1 do
    sum := (sum * 31 + length(names[i]) + ord(names[i][1])) mod 1000000007;
end;

var
  count, i, total, x: int64;
  workers: array[0..1] of TWorker;
  points: TFPObjectList;
  point: TPoint;
  nobody: ^int64;
begin
  count := 300000 * StrToInt(ParamStr(1));
  for i := 0 to 1 do begin
    workers[i] := TWorker.Create(true);
    workers[i].count := count + i;
    workers[i].Start;
  end;
  points := TFPObjectList.Create(true);
  for i := 0 to count - 1 do begin
    point := TPoint.Create;
    point.n := i;
    point.name := 'point-' + IntToStr(i * 31 mod count);
    points.Add(point);
  end;
  for i := 0 to 1 do begin
    workers[i].WaitFor;
    writeln(workers[i].sum, ' ', workers[i].names[workers[i].names.Count div 2]);
  end;
  total := 0;
  x := 12345;
  for i := 1 to 200000 do begin
    x := (x * 1103515245 + 12345) mod 2147483648;
    point := TPoint(points[x mod count]);
    total := (total + point.n + length(point.name)) mod 1000000007;
  end;
  writeln(total);
  nobody := nil;
  try
    nobody^ := 1;
  except
    on E: EAccessViolation do writeln('nobody is there');
  end;
  for i := 0 to count - 1 do
    if TPoint(points[i]).name <> 'point-' + IntToStr(i * 31 mod count) then halt(1);
  points.Free;
  writeln('done');
end.
